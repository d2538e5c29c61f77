//! The bodies of the fuzz targets. Each interprets the input, and checks a property that must hold for every input.

mod access_file;
mod byte_stream;
mod command_line;
mod description;
mod guarded_stream;
mod operation_sequence;
mod replies;
mod tls_handshake;
mod tube_rules;

pub use access_file::check as access_file;
pub use byte_stream::check as byte_stream;
pub use command_line::check as command_line;
pub use description::{check as description, whole as described_server};
pub use guarded_stream::check as guarded_stream;
pub use operation_sequence::check as operations;
pub use replies::check as replies;
pub use tls_handshake::check as tls_handshake;
pub use tube_rules::check as tube_rules;
