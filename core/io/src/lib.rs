//! The outside world, real or simulated: disk, clock, chance
