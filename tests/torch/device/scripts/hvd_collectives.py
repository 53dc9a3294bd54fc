"""Horovod's collectives on the test device: all of them, on busy streams, in any order."""

import hvd_ranks
import hvd_results


def main() -> None:
    """Run all checks."""
    hvd_ranks.start()
    hvd_ranks.run(hvd_results.OF_COLLECTIVES)
    hvd_ranks.finish()


if __name__ == "__main__":
    main()
