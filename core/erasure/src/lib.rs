//! Duty: turns D data pieces of equal length into D+P pieces, and any D of those back into all of
//! them, for D in 1..=16 and P in 0..=4. A mirror of P+1 copies is the code with D = 1.
//!
//! Door: [`Code`] (`encode`, `reconstruct`, `delta`), [`Kernel`] and [`TooFewShards`].
//!
//! Never: allocates, does I/O, starts a thread, checks checksums, or knows packs, slots and stripes.
//! A wrong byte goes in, a wrong byte comes out: callers verify checksums first and hand over only
//! pieces they trust.
//!
//! Flow: every call becomes a small matrix of coefficients (`field` for encode and delta, `solve` for
//! reconstruct) and one pass of `kernel::dot`: up to 4 outputs, each a dot product over
//! up to 16 inputs. The code works per byte offset, so a caller may cut the pieces wherever it likes
//! (say, to fuse it with a checksum) and gets the same bytes.
//!
//! On-disk format (version 1; changing any of this makes every stored parity byte wrong):
//! - the field is GF(2^8) = GF(2)\[x\] / (x^8 + x^4 + x^3 + x^2 + 1), reduction byte pattern 0x11D,
//!   bit b of a byte is the coefficient of x^b;
//! - parity piece i (shard index D + i) at each offset is the sum over j of C(i,j) * data piece j;
//! - C(i,j) = (x(i)+y(0)) * (x(0)+y(j)) / ((x(i)+y(j)) * (x(0)+y(0))), with x(i) = 16 + i,
//!   y(j) = j, and + meaning exclusive or.
//!
//! C is the Cauchy matrix 1 / (x(i)+y(j)) with rows and columns scaled so that row 0 and column 0
//! are all ones. Scaling by non-zero factors keeps every square submatrix invertible, hence every D
//! of the D+P pieces are enough. Column 0 makes D = 1 a mirror, row 0 makes the first parity a plain
//! exclusive or. C(i,j) depends on neither D nor P: a missing data piece acts as one of zeros, and a
//! code with smaller P stores a prefix of the parity of one with larger P.
//!
//! Tests: `tests/exhaustive.rs` (every D, P and loss pattern; I25), `tests/kernels.rs` (each kernel
//! against the portable one), `tests/golden.rs` (stored bytes), `examples/throughput.rs` (speed).

mod code;
mod field;
mod kernel;
mod solve;

pub use code::{Code, TooFewShards};
pub use kernel::Kernel;

/// Most data pieces of a code.
pub const DATA_MAX: usize = 16;
/// Most parity pieces of a code.
pub const PARITY_MAX: usize = 4;
