"""Compiled models behind an endpoint: the Open Inference Protocol over REST and gRPC.

request bytes -> messages (REST) or grpc_service -> Signature.take -> Lane -> Replica
"""
