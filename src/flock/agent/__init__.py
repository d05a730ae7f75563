"""The node agent: wires core and edges together and answers the CNI executable."""
