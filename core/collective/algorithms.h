#pragma once

#include "collective/plan.h"
#include "collective/shape.h"

/// The algorithms, each a pure function from a shape to this rank's plan. n is the number of ranks,
/// S the bytes of the whole buffer, and "bytes" are the bytes that one rank sends.
namespace slipstream {

namespace ring {
/// A reduce_scatter, then an all_gather: 2(n-1) steps, 2 S (n-1)/n bytes, no scratch.
Plan allreduce(const Shape& shape);
/// Block r travels once round the ring, is added up on the way, and ends at rank r: n-1 steps, S
/// (n-1)/n bytes, scratch for the n-2 partial blocks that pass by.
Plan reduce_scatter(const Shape& shape);
/// n-1 steps; each rank sends all blocks except its successor's.
Plan all_gather(const Shape& shape);
/// A chain from the root, with pipelined segments: n-1 steps, S bytes.
Plan broadcast(const Shape& shape);
/// A reduce_scatter, then every block is sent to the root: n steps, S bytes, scratch S except at
/// the root.
Plan reduce(const Shape& shape);
}  // namespace ring

namespace dimensions {
/// A reduce-scatter over each dimension of the layout, the innermost first, and all-gathers back: 2
/// sum (d-1) steps and 2 S (n-1)/n bytes. Of these bytes, 2 S/l (h-1)/h leave the host if there are
/// h hosts of l ranks, which is the minimum. Scratch for the data that arrive in all dimensions
/// except the first.
Plan allreduce(const Shape& shape);
}  // namespace dimensions

namespace encoded {
/// For lossy codecs. Within a host it is exact, like `dimensions`. Between hosts, every contributor
/// encodes a block for the block's owner, who sums in float32, encodes the sum once and sends it to
/// all. If there are h hosts of l ranks, 2 S/l (h-1)/h encoded bytes leave the host, in 2 steps.
/// Scratch for S/l (h+1)/h values, encoded, twice.
Plan allreduce(const Shape& shape);
}  // namespace encoded

namespace recursive_doubling {
/// log2 n exchanges of the whole buffer. If n is not a power of two, the surplus ranks first send
/// their data to a neighbour and get the result last. At most 2 + log2 n steps of S bytes, scratch
/// S log2 n.
Plan allreduce(const Shape& shape);
/// An allreduce of an empty buffer.
Plan barrier(const Shape& shape);
}  // namespace recursive_doubling

namespace binomial {
/// log2 n steps, at most S log2 n bytes (at the root).
Plan broadcast(const Shape& shape);
/// log2 n steps, S bytes, scratch S log2 n.
Plan reduce(const Shape& shape);
}  // namespace binomial

namespace direct {
/// One step, S (n-1) bytes; each rank adds up all contributions in the order of the ranks.
Plan allreduce(const Shape& shape);
/// One step, S (n-1)/n bytes; the owner adds up in the order of the ranks.
Plan reduce_scatter(const Shape& shape);
/// One step; every rank sends its own block to all others.
Plan all_gather(const Shape& shape);
/// One step; the root sends n-1 times.
Plan broadcast(const Shape& shape);
Plan gather(const Shape& shape);
Plan scatter(const Shape& shape);
/// One step; every rank sends each other rank its block, beginning with the next rank.
Plan all_to_all(const Shape& shape);
Plan barrier(const Shape& shape);
/// One send or one receive.
Plan point_to_point(const Shape& shape);
}  // namespace direct

}  // namespace slipstream
