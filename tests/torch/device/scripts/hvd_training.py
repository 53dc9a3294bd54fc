"""DistributedOptimizer on the test device, with every rank on a host of its own, for codecs."""

import os

import hvd_ranks
import hvd_results


def main() -> None:
    """Run all checks."""
    os.environ["SLIPSTREAM_HOST_ID"] = f"host of {os.environ['RANK']}"
    hvd_ranks.start()
    hvd_ranks.run(hvd_results.OF_TRAINING)
    hvd_ranks.finish()


if __name__ == "__main__":
    main()
