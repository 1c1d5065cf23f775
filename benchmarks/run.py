"""Runs every benchmark, or those named: `run.py [QUESTION...]`.

Owns: which questions there are (one `bench_*.py` each, with a QUESTION) and telling how far along we are.
"""

import argparse
import importlib
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import report
from harness import Question

HERE = Path(__file__).resolve().parent


def questions() -> dict[str, Question]:
    modules = [importlib.import_module(file.stem) for file in sorted(HERE.glob("bench_*.py"))]
    return {module.QUESTION.name: module.QUESTION for module in modules}


def main() -> None:
    known = questions()
    parser = argparse.ArgumentParser(description="Measure tensormem against its peers; writes benchmarks/RESULTS.md.")
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"some of: {', '.join(known)}")
    names = parser.parse_args().questions or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no question called {', '.join(unknown)}; there are {', '.join(known)}")

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("measuring", total=len(names))
        for name in names:
            question = known[name]

            def say(text: str, name: str = name) -> None:
                progress.update(task, description=f"{name}: {text}")

            rows = question.measure(say)
            report.write(question, rows)
            console.print(f"\n[bold]{question.title}[/bold]")
            for metric in question.metrics:
                console.print(Markdown(report.table(question, metric, rows)))
            progress.advance(task)
    console.print(f"written to {report.RESULTS.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
