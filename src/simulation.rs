//! What tests and benchmarks use beside the public modules of the program: the streams of a server without sockets, the
//! orders of the API with the reasons for which they are refused, and a connection without its socket.
//!
//! A server whose client is in memory:
//!
//! ```
//! # use std::cell::RefCell;
//! # use std::collections::VecDeque;
//! # use std::convert::Infallible;
//! # use std::io::{self, ErrorKind, IoSlice, Read};
//! # use std::rc::Rc;
//! use beanstalkd::server::{Executor, ExecutorConfig, Readiness, Server};
//! use beanstalkd::simulation::{PollToken, Stream};
//! use beanstalkd::stats::ServerInfo;
//! use beanstalkd_types::clock::Timestamp;
//!
//! #[derive(Clone, Default)]
//! struct Wire {
//!     sent: Rc<RefCell<VecDeque<u8>>>,
//!     received: Rc<RefCell<Vec<u8>>>,
//! }
//!
//! impl Stream for Wire {
//!     // ...
//! #     fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
//! #         match self.sent.borrow_mut().read(buffer)? {
//! #             0 => Err(ErrorKind::WouldBlock.into()),
//! #             count => Ok(count),
//! #         }
//! #     }
//! #     fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
//! #         let mut buffer = vec![0; max_bytes];
//! #         let count = self.read(&mut buffer)?;
//! #         body.extend_from_slice(&buffer[..count]);
//! #         Ok(count)
//! #     }
//! #     fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
//! #         self.received.borrow_mut().extend_from_slice(bytes);
//! #         Ok(bytes.len())
//! #     }
//! #     fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
//! #         slices.iter().map(|slice| self.write(slice)).sum()
//! #     }
//! #     fn await_writable(&mut self, _: PollToken, _: bool) {}
//! }
//!
//! # let config = ExecutorConfig { max_job_bytes: 1 << 16, ..ExecutorConfig::default() };
//! let (wire, now) = (Wire::default(), Timestamp(1));
//! let mut server = Server::new(Executor::new(config, ServerInfo::default()));
//! let client = server.accept(|_| Ok::<_, Infallible>(wire.clone()), now)?;
//! wire.sent.borrow_mut().extend(b"put 0 0 60 5\r\nhello\r\nreserve\r\n");
//! let event = (client, Readiness { readable: true, ..Readiness::default() });
//! server.turn([event].into_iter(), now);
//! assert_eq!(*wire.received.borrow(), b"INSERTED 1\r\nRESERVED 1 5\r\nhello\r\n");
//! # Ok::<(), Infallible>(())
//! ```

pub use crate::exchange::{Exchange, Output};
pub use crate::orders::selection::{AsOf, Filter, JobWalk};
pub use crate::orders::{Control, JobAction, Order, Progress, PutOrder, Selection, Task, TaskId};
pub use crate::poll_token::PollToken;
pub use crate::refusal::{CommandRefusal, PutRefusal};
pub use crate::stream::{Handle, Stream, TlsStream};
