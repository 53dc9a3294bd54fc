"""Which rank a process is, from the variables that launchers really set."""

import pytest

from slipstream.errors import ConfigError
from slipstream.settings import Launch, chosen_master, detect_launcher, thread_environment

TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29400",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "1234567",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4,2(x2)",
    "SLURM_STEP_NODELIST": "gpu[03-04,9]",
    "SLURM_JOB_ID": "77",
}


def test_without_a_launcher_a_process_is_rank_0_of_1() -> None:
    assert detect_launcher({}) == Launch(
        rank=0,
        local_rank=0,
        world_size=1,
        local_world_size=1,
        master_addr="127.0.0.1",
        master_port=29500,
        source="single",
    )


def test_torchruns_variables_are_understood() -> None:
    assert detect_launcher(TORCHRUN) == Launch(
        rank=3,
        local_rank=1,
        world_size=4,
        local_world_size=2,
        master_addr="10.0.0.1",
        master_port=29400,
        source="environment",
    )


def test_what_a_launch_writes_is_what_detection_reads() -> None:
    launch = detect_launcher(TORCHRUN)
    of_horovod = {
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
    }
    assert launch.as_environment() == {**TORCHRUN, **of_horovod}
    assert detect_launcher(launch.as_environment()) == launch


def test_a_launch_does_not_make_up_how_many_ranks_its_host_has() -> None:
    launch = detect_launcher(SRUN)
    assert "LOCAL_WORLD_SIZE" not in launch.as_environment()
    assert detect_launcher(launch.as_environment()).local_world_size is None


@pytest.mark.parametrize(
    ("environ", "source", "rank", "size", "local_rank", "address"),
    [
        (OPEN_MPI, "openmpi", 1, 2, 1, "127.0.0.1"),
        (HYDRA, "pmi", 1, 2, 1, "127.0.0.1"),
        (SRUN, "slurm", 5, 8, 1, "gpu03"),
    ],
)
def test_other_launchers_are_understood(
    environ: dict[str, str], source: str, rank: int, size: int, local_rank: int, address: str
) -> None:
    launch = detect_launcher(environ)
    assert (launch.source, launch.rank, launch.world_size) == (source, rank, size)
    assert (launch.local_rank, launch.master_addr) == (local_rank, address)


def test_torchruns_variables_go_before_mpis_and_mpis_before_slurms() -> None:
    assert detect_launcher(SRUN | OPEN_MPI | TORCHRUN).source == "environment"
    assert detect_launcher(SRUN | OPEN_MPI).source == "openmpi"
    assert detect_launcher(SRUN | HYDRA).source == "pmi"


def test_a_batch_script_that_srun_did_not_start_is_rank_0_of_1() -> None:
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77"}
    assert detect_launcher(batch).source == "single"


def test_master_variables_go_before_what_the_launcher_says() -> None:
    chosen = {"MASTER_ADDR": "fd00::1", "MASTER_PORT": "1234"}
    for environ in (OPEN_MPI, HYDRA, SRUN):
        launch = detect_launcher(environ | chosen)
        assert (launch.master_addr, launch.master_port) == ("fd00::1", 1234)


def test_all_ranks_of_a_job_compute_one_even_port_and_other_jobs_mostly_others() -> None:
    ports = {
        detect_launcher(SRUN | {"SLURM_JOB_ID": str(job), "SLURM_PROCID": rank}).master_port
        for job in range(100)
        for rank in ("0", "7")
    }
    assert 90 <= len(ports) <= 100
    assert all(20000 <= port < 30000 and port % 2 == 0 for port in ports)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("a", "a"),
        ("a,b", "a"),
        ("gpu-[1,3-5],login", "gpu-1"),
        ("rack[0-1]node[002-9].site", "rack0node002.site"),
    ],
)
def test_rank_0_is_on_the_first_host_of_slurms_list(nodes: str, first: str) -> None:
    assert detect_launcher(SRUN | {"SLURM_STEP_NODELIST": nodes}).master_addr == first


@pytest.mark.parametrize(
    ("tasks", "local_world_size", "address"),
    [("8", 8, "127.0.0.1"), ("4(x2)", 4, "gpu03"), ("6,1(x2)", None, "gpu03"), ("", None, "gpu03")],
)
def test_slurms_tasks_per_node_say_how_many_ranks_share_a_host(
    tasks: str, local_world_size: int | None, address: str
) -> None:
    launch = detect_launcher(SRUN | {"SLURM_STEP_TASKS_PER_NODE": tasks})
    assert (launch.local_world_size, launch.master_addr) == (local_world_size, address)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "0"}, "RANK is set, but WORLD_SIZE is not"),
        (TORCHRUN | {"RANK": "4"}, "RANK is 4; allowed: 0 to 3, because WORLD_SIZE is 4"),
        (TORCHRUN | {"RANK": "-1"}, "RANK is '-1'; allowed: a whole number from 0"),
        (TORCHRUN | {"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'; allowed: a whole number from 1"),
        (TORCHRUN | {"MASTER_PORT": "65535"}, "MASTER_PORT is '65535'; allowed: "),
        (SRUN | {"SLURM_STEP_NODELIST": "]"}, "the Slurm node list is ']'; allowed: "),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            "MASTER_ADDR is not set, and OMPI_COMM_WORLD_RANK does not say where rank 0 is",
        ),
    ],
)
def test_incomplete_or_impossible_variables_are_named(
    environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        detect_launcher(environ)
    assert str(raised.value).startswith(message)


def test_an_address_or_port_chosen_before_a_launch_is_kept() -> None:
    assert chosen_master({}) == (None, None)
    assert chosen_master({"MASTER_ADDR": "a", "MASTER_PORT": "5"}) == ("a", 5)


@pytest.mark.parametrize(
    ("cores", "ranks", "threads"), [(8, 2, "4"), (7, 2, "3"), (2, 4, "1"), (1, 1, "1")]
)
def test_ranks_share_the_cores_of_their_host(cores: int, ranks: int, threads: str) -> None:
    assert thread_environment({}, cores, ranks) == {"OMP_NUM_THREADS": threads}
    assert thread_environment({"OMP_NUM_THREADS": "9"}, cores, ranks) == {}
