"""A client of Sapwood's gRPC interface that knows nothing but an address: services, methods and messages come by reflection."""

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status


class Service:
    """One service; each of its methods is a method here that takes the fields of its request as keyword arguments."""

    def __init__(self, channel, descriptor, metadata, timeout):
        self._channel, self._descriptor, self._metadata, self._timeout = channel, descriptor, metadata, timeout

    def methods(self):
        return [method.name for method in self._descriptor.methods]

    def request(self, method):
        """The class of a method's request."""
        return message_factory.GetMessageClass(self._descriptor.methods_by_name[method].input_type)

    def __getattr__(self, name):
        method = self._descriptor.methods_by_name[name]
        request = message_factory.GetMessageClass(method.input_type)
        answer = message_factory.GetMessageClass(method.output_type)
        kind = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        call = kind(
            f"/{self._descriptor.full_name}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return lambda **fields: call(request(**fields), metadata=self._metadata, timeout=self._timeout)

    def raw(self, name, data):
        """Calls a method with these bytes as its request."""
        call = self._channel.unary_unary(f"/{self._descriptor.full_name}/{name}")
        return call(data, metadata=self._metadata, timeout=self._timeout)


class Sapwood:
    """All services of a server."""

    def __init__(self, address, token=None, timeout=60):
        options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
        self.channel = grpc.insecure_channel(address, options=options)
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._timeout = timeout
        database = ProtoReflectionDescriptorDatabase(_WithMetadata(self.channel, self._metadata))
        self.services = list(database.get_services())
        self._pool = descriptor_pool.DescriptorPool(database)
        self.utxo = self.service("sapwood.v1.Utxo")
        self.chain = self.service("sapwood.v1.Chain")
        self.pruner = self.service("sapwood.v1.Pruner")

    def service(self, name):
        descriptor = self._pool.FindServiceByName(name)
        return Service(self.channel, descriptor, self._metadata, self._timeout)

    def enum(self, name):
        """The values of an enum by name, without the prefix they share."""
        descriptor = self._pool.FindEnumTypeByName(f"sapwood.v1.{name}")
        prefix = len(descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED"))
        return {value.name[prefix:]: value.number for value in descriptor.values}

    def problem(self, error):
        """The problem that a refused call carries in its details."""
        [detail] = rpc_status.from_call(error).details
        problem = message_factory.GetMessageClass(self._pool.FindMessageTypeByName("sapwood.v1.Problem"))()
        assert detail.Unpack(problem), detail.type_url
        return problem

    def close(self):
        self.channel.close()


class _WithMetadata:
    """A channel that adds metadata to the stream of reflection, which has no other way to say it."""

    def __init__(self, channel, metadata):
        self._channel, self._metadata = channel, metadata

    def stream_stream(self, *args, **kwargs):
        call = self._channel.stream_stream(*args, **kwargs)
        return lambda requests, **options: call(requests, **{**options, "metadata": self._metadata})

    def __getattr__(self, name):
        return getattr(self._channel, name)
