#pragma once

#include "collective/plan.h"
#include "collective/shape.h"

/// The algorithms, each a pure function from a shape to this rank's plan. n is the number of ranks
/// and S the bytes of the whole buffer; "bytes" are those that one rank sends.
namespace slipstream {

namespace ring {
/// reduce_scatter, then all_gather. 2(n-1) steps, 2 S (n-1)/n bytes, no scratch.
Plan allreduce(const Shape& shape);
/// Block r travels once round the ring, adding up, and ends at rank r. n-1 steps, S (n-1)/n bytes,
/// scratch for the n-2 partial blocks that pass by.
Plan reduce_scatter(const Shape& shape);
/// n-1 steps; each rank sends every block but its successor's.
Plan all_gather(const Shape& shape);
/// A chain from the root, segments pipelined. n-1 steps, S bytes.
Plan broadcast(const Shape& shape);
/// reduce_scatter, then every block to the root. n steps, S bytes, scratch S except at the root.
Plan reduce(const Shape& shape);
}  // namespace ring

namespace dimensions {
/// Reduce-scatter over each dimension of the layout, the innermost first, and all-gather back: 2
/// sum (d-1) steps, 2 S (n-1)/n bytes, of which those beyond a host are 2 S/l (h-1)/h for h hosts
/// of l ranks, the least possible. Scratch for what arrives in all dimensions but the first.
Plan allreduce(const Shape& shape);
}  // namespace dimensions

namespace encoded {
/// For lossy codecs: within a host as `dimensions`, exactly; between hosts every contributor
/// encodes a block for its owner, who sums in float32, encodes once and sends that to all. 2 S/l
/// (h-1)/h encoded bytes beyond a host of l ranks among h, in 2 steps. Scratch for S/l (h+1) / h
/// values, encoded, twice.
Plan allreduce(const Shape& shape);
}  // namespace encoded

namespace recursive_doubling {
/// log2 n exchanges of everything; where n is no power of two, the ranks beyond it fold into a
/// neighbour first and get the result last. At most 2 + log2 n steps of S bytes, scratch S log2 n.
Plan allreduce(const Shape& shape);
/// allreduce of nothing.
Plan barrier(const Shape& shape);
}  // namespace recursive_doubling

namespace binomial {
/// log2 n steps, at most S log2 n bytes (at the root).
Plan broadcast(const Shape& shape);
/// log2 n steps, S bytes, scratch S log2 n.
Plan reduce(const Shape& shape);
}  // namespace binomial

namespace direct {
/// One step, S (n-1) bytes; each rank adds all contributions up in the order of the ranks.
Plan allreduce(const Shape& shape);
/// One step, S (n-1)/n bytes; the owner adds up in the order of the ranks.
Plan reduce_scatter(const Shape& shape);
/// One step; the own block to everyone.
Plan all_gather(const Shape& shape);
/// One step; the root sends n-1 times.
Plan broadcast(const Shape& shape);
Plan gather(const Shape& shape);
Plan scatter(const Shape& shape);
/// One step; to each rank its block, the next rank first.
Plan all_to_all(const Shape& shape);
Plan barrier(const Shape& shape);
/// A send or a receive.
Plan point_to_point(const Shape& shape);
}  // namespace direct

}  // namespace slipstream
