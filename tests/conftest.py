"""Stands here so that `harness` can be imported by the tests of every folder."""
