//! beanstalkctl as a process, against this repository's server, Debian's server, and a fake server with every
//! extension.

mod access;
mod changing;
mod closed_output;
mod drain_continued;
mod groups;
mod import;
mod meanwhile;
mod rules;
mod showing;
mod silent;
mod support;
mod terminal;
mod tls;
mod top;
mod transfer;
mod transfer_refused;
mod work;
