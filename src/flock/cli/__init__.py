"""flockctl, the operator's command."""
