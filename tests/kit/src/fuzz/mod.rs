//! The bodies of the fuzz targets. Each interprets the input, and checks a property that must hold for every input.

mod byte_stream;
mod command_line;
mod operation_sequence;

pub use byte_stream::check as byte_stream;
pub use command_line::check as command_line;
pub use operation_sequence::check as operations;
