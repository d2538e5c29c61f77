//! Tests of the binlog as a whole: crashes on a simulated disk, damage, full disks, tags, interchange with C.

mod after_crash;
mod c_file;
mod c_server;
mod clock;
mod complete;
mod crash;
mod damage;
mod fixture;
mod harness;
mod idle;
mod interchange;
mod recover;
mod rest;
mod room;
mod sessions;
mod tags;
mod torn;
mod weaknesses;
