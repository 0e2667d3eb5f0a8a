"""Sizes that objects of Braid have."""

MIB = 1 << 20
# The data of a full object, of a piece of it, which has a descriptor of a block before it, and of a block.
OBJECT, PIECE, BLOCK = 64 * MIB, MIB, 4096
