"""The container of the ranks in a job description."""

from __future__ import annotations

from typing import Literal

from slipstream.cluster.head.container import ContainerImage
from slipstream.cluster.spec.model import SpecModel, Texts


class Container(SpecModel):
    """The container image in which the ranks run on ssh hosts and on machines of clouds."""

    image: str = ""
    """Image with Python and this version of Slipstream; by default the ranks run on the host
    itself. Kubernetes has `k8s.image`."""
    runtime: Literal["", "podman", "docker"] = ""
    """Program that runs containers; by default podman, or docker where there is no podman."""
    python: str = "python3"
    """Python in the image."""
    options: Texts = ()
    """Further options for `podman run` or `docker run`, such as `--volume=/data:/data`."""

    def as_image(self, volumes: tuple[str, ...]) -> ContainerImage | None:
        """Return the image for the hosts, or None if the job has none.

        Args:
            volumes: Absolute paths of storage that the host mounts.
        """
        if not self.image:
            return None
        return ContainerImage(
            image=self.image,
            runtime=self.runtime,
            python=self.python,
            options=self.options,
            volumes=volumes,
        )
