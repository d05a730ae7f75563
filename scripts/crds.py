"""Write deploy/crds from what NodeConfigs are declared to be, for people and for the Helm chart:
`.venv/bin/python scripts/crds.py`."""

from pathlib import Path
from typing import Any

import yaml

from crd.clusterpolicy import FILE, cluster_policy
from crd.definitions import definitions

DEPLOY = Path(__file__).parent.parent / "deploy"
DIRECTORIES = (DEPLOY / "crds", DEPLOY / "helm" / "flock" / "crds")
HEADER = "# Made by scripts/crds.py from src/flock/core/nodeconfig/shape.py; change it there.\n"
OPTIONAL_HEADER = "# Made by scripts/crds.py from scripts/crd/clusterpolicy.py; change it there.\n"
OPTIONAL = DEPLOY / FILE
OPTIONAL_IN_CHART = DEPLOY / "helm" / "flock" / "templates" / FILE


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True  # every schema is written out where it is used


def render(definition: dict[str, Any], header: str = HEADER) -> str:
    return header + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=100_000)


def optional(definition: dict[str, Any]) -> str:
    return render(definition, OPTIONAL_HEADER)


def in_chart(definition: dict[str, Any]) -> str:
    return f"{{{{- if .Values.clusterNetworkPolicies.crd }}}}\n{optional(definition)}{{{{- end }}}}\n"


def main() -> None:
    for directory in DIRECTORIES:
        directory.mkdir(parents=True, exist_ok=True)
        for name, definition in definitions().items():
            (directory / name).write_text(render(definition))
    OPTIONAL.write_text(optional(cluster_policy()))
    OPTIONAL_IN_CHART.write_text(in_chart(cluster_policy()))


if __name__ == "__main__":
    main()
