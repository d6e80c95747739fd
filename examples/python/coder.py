"""A coding agent: bash, read and grep in a folder, for tasks that are far longer than the model's window.

python coder.py http://localhost:7070 MODEL FOLDER "Find out why the tests fail."

contextd clears old results and compacts the conversation by itself when the window is full; the agent says when it
does. Commands are shown and wait for a "y" unless `--yes` is given. They run as you, in FOLDER: use a container for
tasks of other people.
"""

import re
import subprocess
import sys
from pathlib import Path

from contextd import ApprovalRequest, Contextd, Tool, ToolError, events, tool

INSTRUCTIONS = """You are a coding agent. Work in small steps: look first, then change, then test. Answer briefly."""


def tools_in(folder: Path, asks: bool) -> list[Tool]:
    """The tools, which see nothing outside of the folder (but bash may)."""

    def inside(path: str) -> Path:
        found = (folder / path).resolve()
        if not found.is_relative_to(folder):
            raise ToolError(f"{path} is outside of the folder")
        return found

    @tool(timeout=120, needs_approval=asks)
    def bash(command: str) -> str:
        """Runs a command in the folder and gives its output and exit code."""
        made = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=115)
        return f"{made.stdout}{made.stderr}\n[exit code {made.returncode}]"

    @tool
    def read(path: str, first_line: int = 1, lines: int = 500) -> str:
        """Reads a file, or some lines of it.

        Args:
            path: Relative to the folder.
            first_line: From 1.
            lines: How many.
        """
        text = inside(path).read_text("utf-8", "replace").splitlines()
        chosen = text[first_line - 1 : first_line - 1 + lines]
        return "\n".join(f"{number}\t{line}" for number, line in enumerate(chosen, first_line))

    @tool
    def grep(pattern: str, glob: str = "**/*") -> str:
        """Searches the files that match the glob for a regular expression."""
        wanted = re.compile(pattern)
        return "\n".join(
            f"{path.relative_to(folder)}:{number}:{line}"
            for path in sorted(folder.glob(glob))
            if path.is_file() and ".git" not in path.parts
            for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
            if wanted.search(line)
        )

    return [bash, read, grep]


def confirm(request: ApprovalRequest) -> bool:
    """Asks the person at the terminal."""
    return input(f"\n$ {request.arguments.get('command')}\nrun it? [y/N] ").strip().lower() == "y"


def main(server: str, model: str, folder: str, *tasks: str) -> None:
    """Works on the tasks, one after the other."""
    place = Path(folder).resolve()
    asks = "--yes" not in tasks
    with Contextd(server) as client:
        session = client.session(model=model, instructions=INSTRUCTIONS, tools=tools_in(place, asks))
        for task in (task for task in tasks if task != "--yes"):
            run = session.run(task, on_approval=confirm)
            for event in run:
                if isinstance(event, events.TextDelta):
                    print(event.text, end="", flush=True)
                elif isinstance(event, events.ToolCallRequested):
                    print(f"\n-> {event.name} {event.arguments_json}")
                elif isinstance(event, events.ContextPruned):
                    print(f"[{event.payload.report.outputs_pruned} old results cleared]")
                elif isinstance(event, events.CompactionCompleted):
                    made = event.payload.compaction
                    print(f"[compacted: {made.tokens_before.tokens} -> {made.tokens_after.tokens} tokens]")
            result = run.result()
            print(f"\n[{result.steps} steps, {result.usage.total_tokens} tokens]")
        print(session.stats_text())


if __name__ == "__main__":
    main(*sys.argv[1:])
