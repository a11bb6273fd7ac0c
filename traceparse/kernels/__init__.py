"""The agent's kernel files: replay of its file work (`versions`), framework labels, bundles. Runs nothing that a trace holds.

`versions.replay` makes the `kernels` table; `workspace` is the replayed file tree, `calls` says what a tool call did to it,
`shell`, `pyscript`, `sedscript` and `patch` read the small languages in which agents write files.
"""
