"""`flockctl doctor`: what around flock on this host will hurt, why, and the cure.

Asked of the agent; where none answers, looked at from here with the usual directories, and its absence is a finding.
"""

import argparse
from typing import Any

import msgspec

from flock.cli.answers import NO, print_json
from flock.core.doctor import Finding, diagnose
from flock.core.errors import FlockError
from flock.core.tables import table
from flock.edge.around import Surroundings, gather
from flock.edge.rpc_client import AgentError, Refused, ask

NO_AGENT = Finding(
    about="agent",
    finding="no agent answers",
    why="no pod can be attached, and what was seen here is what can be seen without its configuration",
    cure="start flock-agent, or say where it is with --run-dir",
)


def run(arguments: argparse.Namespace) -> int:
    """0: nothing hurts; 1: something does.  Notes are told, and hurt nobody."""
    try:
        findings: list[dict[str, Any]] = ask(arguments.run_dir, "doctor")
    except Refused:
        raise
    except AgentError:
        try:
            seen = diagnose(gather(Surroundings(run_dir=arguments.run_dir)))
        except PermissionError:
            raise FlockError("doctor needs root: it asks the agent, or looks at packet filters itself") from None
        findings = [msgspec.to_builtins(finding) for finding in (NO_AGENT, *seen)]
    if arguments.output == "json":
        print_json(findings)
    else:
        print(_words(findings))
    return NO if any(not finding["note"] for finding in findings) else 0


def _words(findings: list[dict[str, Any]]) -> str:
    if not findings:
        return "nothing around flock on this host hurts"
    rows = [(("note: " if f["note"] else "") + f["finding"], f["why"], f["cure"]) for f in findings]
    return table(("FINDING", "WHY IT HURTS", "CURE"), rows)
