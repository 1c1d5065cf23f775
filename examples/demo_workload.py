"""What `make demo` records: a camera for three, and three models that serve real requests from one budget of memory.

Owns: nothing but the order of the two; they are examples of their own. Ends with 1 if a frame was not whole.
"""

import argparse
import sys
from collections.abc import Sequence

import camera_to_three
import tensormem as tm
from kv_cache import load, progress
from kv_serving.fleets import ElasticFleet
from kv_serving.models import share_out
from kv_serving.serving import Server
from tensormem.units import format_size, parse_size


def serve_models(most: int, budget_bytes: int) -> None:
    requests = load(None, most)
    fleet = ElasticFleet(budget_bytes)
    with tm.tag("kv-cache"):
        outcome = Server(fleet).serve(requests, share_out(requests), progress("serving"))
        fleet.close()
    needed = format_size(max(outcome.needed))
    print(
        f"{outcome.served:,} requests served, {outcome.turned_away + outcome.cut_off:,} not, in "
        f"{format_size(budget_bytes)}; their tokens needed {needed} at most"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A camera for three, and three models in one budget.")
    parser.add_argument("--requests", type=int, default=1200)
    parser.add_argument("--budget", default="512MiB")
    parser.add_argument("--frames", type=int, default=60)
    given = parser.parse_args(arguments)
    code = camera_to_three.main(["--frames", str(given.frames)])
    print()
    serve_models(given.requests, parse_size(given.budget))
    return code


if __name__ == "__main__":
    sys.exit(main())
