"""Pure core: values in, values out.  Nothing here reads a clock, a file, a socket or the kernel."""
