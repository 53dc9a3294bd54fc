"""Slipstream's environment variables, with their allowed values, defaults, units and meanings.

The variables are read once, when a program starts (`Settings.from_environment`, `detect_launcher`),
and are passed on as frozen values. `python -m slipstream.settings` prints the documentation page of
the variables.
"""

from slipstream.settings.clouds import AliyunSettings as AliyunSettings
from slipstream.settings.clouds import aliyun_settings as aliyun_settings
from slipstream.settings.cluster import checkpoint_environment as checkpoint_environment
from slipstream.settings.cluster import gpu_share_environment as gpu_share_environment
from slipstream.settings.cluster import home_folder as home_folder
from slipstream.settings.cluster import observations_file as observations_file
from slipstream.settings.cluster import plan_environment as plan_environment
from slipstream.settings.cluster import secret_variables as secret_variables
from slipstream.settings.cluster import share_hook_environment as share_hook_environment
from slipstream.settings.cluster import steps_are_reported as steps_are_reported
from slipstream.settings.cluster import steps_environment as steps_environment
from slipstream.settings.cluster import stopping_call as stopping_call
from slipstream.settings.elastic import RANK_VARIABLES as RANK_VARIABLES
from slipstream.settings.elastic import ElasticPart as ElasticPart
from slipstream.settings.elastic import announce_epoch as announce_epoch
from slipstream.settings.elastic import follow_joiners as follow_joiners
from slipstream.settings.elastic import member_fd_environment as member_fd_environment
from slipstream.settings.elastic import without_elastic_part as without_elastic_part
from slipstream.settings.flight import flight_environment as flight_environment
from slipstream.settings.flight import recorded_environment as recorded_environment
from slipstream.settings.horovod import HorovodSettings as HorovodSettings
from slipstream.settings.kinds import InterfaceFilter as InterfaceFilter
from slipstream.settings.lab import relay_environment as relay_environment
from slipstream.settings.launch import Launch as Launch
from slipstream.settings.launch import LaunchSource as LaunchSource
from slipstream.settings.launch import absolute_module_path as absolute_module_path
from slipstream.settings.launch import chosen_master as chosen_master
from slipstream.settings.launch import detect_launcher as detect_launcher
from slipstream.settings.launch import thread_environment as thread_environment
from slipstream.settings.loopback import loopback_address as loopback_address
from slipstream.settings.nccl import nccl_plugin_environment as nccl_plugin_environment
from slipstream.settings.queue import QueuePart as QueuePart
from slipstream.settings.queue import forget_queue_token as forget_queue_token
from slipstream.settings.queue import progress_environment as progress_environment
from slipstream.settings.queue import progress_file as progress_file
from slipstream.settings.queue import queue_job_environment as queue_job_environment
from slipstream.settings.queue import queue_token_variable as queue_token_variable
from slipstream.settings.variables import AlgorithmName as AlgorithmName
from slipstream.settings.variables import Settings as Settings
from slipstream.settings.variables import job_key_environment as job_key_environment
