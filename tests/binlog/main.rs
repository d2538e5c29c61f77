//! Tests of the binlog as a whole: crashes on a simulated disk, damage, room, interchange with C.

mod crash;
mod sim_disk;
mod world;
