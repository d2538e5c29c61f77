//! The program itself, against this repository's server, Debian's, and a server that has every extension.

mod acting;
mod looking;
mod support;
mod terminal;
mod top;
mod transfer;
mod work;
