//! The bodies of the fuzz targets: what each input is taken for, and what must hold of it.

mod byte_stream;
mod command_line;
mod operation_sequence;

pub use byte_stream::check as byte_stream;
pub use command_line::check as command_line;
pub use operation_sequence::check as operations;
