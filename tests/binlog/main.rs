//! Tests of the binlog as a whole: crashes on a simulated disk, damage, room, interchange with C.

mod c_server;
mod crash;
mod damage;
mod interchange;
mod sim_disk;
mod world;
