"""What kind of tool a logged name stands for, over all harnesses. A name decides nothing about phases or activity."""

from __future__ import annotations

from typing import Literal

Tool = Literal["shell", "read", "write", "edit", "search", "web", "plan", "subagent", "other"]

_NAMES: dict[Tool, str] = {
    "shell": """bash shell exec exec_command run_shell_command local_shell_call local_shell command execute run_command terminal
        write_stdin wait await taskoutput bashoutput killshell killbash taskstop monitor read_background_output
        list_background_processes unified_exec execute_command container.exec shell_command kill_background_process""",
    "read": "read readfile read_file read_many_files view view_file notebookread list_directory ls readlints view_image list_dir",
    "write": "write writefile write_file create create_file save_file",
    "edit": "edit multiedit edit_file apply_patch replace strreplacefile str_replace str_replace_editor str_replace_based_edit_tool "
    "search_replace patch delete notebookedit editnotebook applypatch delete_file",
    "search": "grep glob search semsearch grep_search file_search codebase_search search_file_content find_files toolsearch tool_search",
    "web": "webfetch web_fetch websearch web_search google_web_search fetchurl searchweb fetch web_search_call browser",
    "plan": "todowrite todoread taskcreate taskupdate tasklist taskget update_plan updatetodos settodolist update_topic write_todos "
    "exitplanmode enterplanmode todo think plan todo_list set_todo_list",
    "subagent": "task agent spawn_agent subagent codebase_investigator delegate",
}
_TOOLS: dict[str, Tool] = {name: tool for tool, names in _NAMES.items() for name in names.split()}


def tool_kind(name: str) -> Tool:
    """The kind of a tool by its logged name; `other` for one that is not known (MCP tools among them).

    Letter case and a trailing ``ToolCall`` or ``Tool`` (Cursor) do not matter.
    """
    lower = name.lower()
    for suffix in ("", "toolcall", "tool", "_tool"):
        if suffix == "" or lower.endswith(suffix):
            kind = _TOOLS.get(lower.removesuffix(suffix) if suffix else lower)
            if kind:
                return kind
    return "other"
