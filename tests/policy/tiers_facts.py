"""What is so about ClusterNetworkPolicy, fact by fact, each of which can be turned around.

The evaluator reads by `Facts()`, which is right.  A misreading is the same with one of them false: it shows that a test
would notice somebody who took that fact the other way.  What the API leaves open and nobody wrote down either is at the
end, under `SILENT`: turned around it is another decision, not a mistake.
"""

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Facts:
    # --- order
    lower_priority_goes_first: bool = True
    ties_go_by_name: bool = True
    """not by age"""
    names_compare_bytewise: bool = True
    """`p10` before `p9`"""
    rules_go_in_order: bool = True
    admin_goes_before_network_policy: bool = True
    network_policy_goes_before_baseline: bool = True
    accept_is_final: bool = True
    """and no tier below is asked"""
    pass_skips_the_rules_after_it: bool = True
    pass_skips_the_policies_after_it: bool = True
    pass_leads_to_network_policy: bool = True
    """not past it, to Baseline"""
    pass_is_no_accept: bool = True
    pass_in_baseline_allows: bool = True
    network_policy_is_final_for_what_it_denies: bool = True
    network_policy_is_final_for_what_it_allows: bool = True
    isolation_counts_per_direction: bool = True
    """an ingress-only policy leaves Baseline egress in force"""
    subjects_are_not_isolated: bool = True
    the_other_end_is_asked_too: bool = True
    """an egress Accept does not open it"""

    # --- who is meant
    host_network_pods_are_no_subjects: bool = True
    host_network_pods_are_no_peers: bool = True
    networks_mean_pods: bool = True
    networks_mean_nodes: bool = True
    networks_are_masked: bool = True
    """host bits that are set do not matter; false: such a block means nobody"""
    nodes_mean_all_nodes: bool = True
    """not the filtering one alone"""
    no_namespace_selector_means_every_namespace: bool = True
    """false: the subject's own, as in NetworkPolicy"""
    no_namespace_is_nobodys_subject: bool = True
    claimed_addresses_count_where_granted: bool = True
    claimed_addresses_count_only_where_granted: bool = True

    # --- which traffic
    no_protocols_mean_icmp_too: bool = True
    """and protocols nobody knows"""
    protocols_never_mean_icmp: bool = True
    """nor any other without ports"""
    the_end_of_a_range_belongs_to_it: bool = True
    a_bare_protocol_means_all_its_ports: bool = True
    a_name_means_each_protocol: bool = True
    """false: TCP, as where NetworkPolicy names none"""
    a_name_means_every_port: bool = True
    """of that name, not the first alone"""
    a_name_beside_networks_or_nodes_never_matches: bool = True
    a_name_beside_networks_or_nodes_leaves_the_rest: bool = True
    """of the rule as it is: its other peers, its other protocols"""

    # --- a pod and itself, and its node
    own_addresses_are_not_subject: bool = True
    own_services_are_subject: bool = True
    the_own_node_gets_in: bool = True
    only_the_own_node_gets_in: bool = True
    """other nodes may be denied"""
    egress_to_the_own_node_can_be_denied: bool = True

    # --- what cannot be read
    an_unknown_peer_voids_an_accept: bool = True
    """with its other peers; false: that peer alone is passed over"""
    an_unknown_peer_makes_deny_deny_all: bool = True
    an_unknown_peer_makes_pass_deny_all: bool = True
    """false: it stays a Pass of everything"""
    an_unknown_peer_overrules_protocols: bool = True
    an_unreadable_policy_denies: bool = True
    an_unreadable_subject_means_nobody: bool = True
    a_deny_that_might_mean_the_pod_counts: bool = True
    an_accept_that_might_mean_the_pod_does_not: bool = True
    what_is_audited_does_nothing: bool = True

    # --- what nobody says (SILENT): decided here, and worth a sentence where users read
    an_unreadable_policy_keeps_its_place: bool = True
    """its tier and priority, if those can be read; false: it goes before all others"""
    an_unreadable_policy_denies_both_directions: bool = True
    """false: those for which it has rules"""
    a_pass_that_might_mean_the_pod_is_taken_both_ways: bool = True
    """denied if either way denies; false: it does not count"""
    unknown_port_names_might_match: bool = True
    """of a pod whose object has not been seen"""
    unknown_labels_of_peers_are_closed_too: bool = True
    """false: such a pod is nobody's peer"""
    no_namespace_is_nobodys_peer: bool = True
    finished_pods_are_no_peers: bool = True
    """as in NetworkPolicy"""
    nodes_mean_listed_addresses: bool = True
    """those in their status; false: all they have"""
    network_policy_never_denies_the_own_node: bool = True
    """it stays final for a pod that it isolates: Baseline is not asked; false: Baseline is"""
    network_policy_never_denies_oneself: bool = True
    """the same for a pod that meets itself behind a Service"""


RIGHT = Facts()
MISREADINGS = {field.name: replace(RIGHT, **{field.name: False}) for field in fields(Facts)}
SILENT = tuple(MISREADINGS)[list(MISREADINGS).index("an_unreadable_policy_keeps_its_place") :]
