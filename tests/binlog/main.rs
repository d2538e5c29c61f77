//! Tests of the binlog as a whole: crashes on a simulated disk, damage, room, interchange with C.

mod c_file;
mod c_server;
mod crash;
mod damage;
mod document;
mod interchange;
mod rest;
mod room;
mod tagged_world;
mod tags;
mod weaknesses;
mod world;
