//! Makes files of the binlog as C beanstalkd writes them, byte by byte.

/// A file of version 5 or 7, to which records can be appended.
#[derive(Clone, Debug)]
pub struct CFile {
    pub bytes: Vec<u8>,
    pub version: i32,
    /// The time to run of its jobs, in nanoseconds.
    pub ttr_ns: i64,
}

pub const DELETED: u8 = 0;
pub const READY: u8 = 1;
pub const BURIED: u8 = 3;

impl CFile {
    pub fn new(version: i32) -> Self {
        Self { bytes: version.to_le_bytes().to_vec(), version, ttr_ns: 60_000_000_000 }
    }

    /// A file of jobs that C 1.4 has stored with a time to run of 0, and that later versions have copied.
    pub fn with_ttr_of_0(version: i32) -> Self {
        Self { ttr_ns: 1000, ..Self::new(version) }
    }

    fn name(&mut self, tube: &str) {
        if self.version == 5 {
            self.bytes.extend_from_slice(&(tube.len() as u64).to_le_bytes());
        } else {
            self.bytes.extend_from_slice(&(tube.len() as i32).to_le_bytes());
        }
        self.bytes.extend_from_slice(tube.as_bytes());
    }

    fn fixed(&mut self, id: u64, body_size: i32, state: u8) {
        let unit: i64 = if self.version == 5 { 1_000_000 } else { 1_000_000_000 };
        let mut fixed = [0xAA; 80];
        fixed[0..8].copy_from_slice(&id.to_le_bytes());
        fixed[8..12].copy_from_slice(&10_u32.to_le_bytes());
        fixed[16..24].copy_from_slice(&(2 * unit).to_le_bytes());
        fixed[24..32].copy_from_slice(&(self.ttr_ns / (1_000_000_000 / unit)).to_le_bytes());
        fixed[32..36].copy_from_slice(&body_size.to_le_bytes());
        fixed[40..48].copy_from_slice(&(1_600_000_000 * unit).to_le_bytes());
        fixed[48..56].copy_from_slice(&(1_600_000_060 * unit).to_le_bytes());
        fixed[56..76].fill(0);
        fixed[76] = state;
        let length = if self.version == 5 { 77 } else { 80 };
        self.bytes.extend_from_slice(&fixed[..length]);
    }

    /// A full record.
    pub fn full(mut self, id: u64, body: &[u8], state: u8) -> Self {
        self.name("default");
        self.fixed(id, body.len() as i32 + 2, state);
        self.bytes.extend_from_slice(body);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// A full record whose body was not written.
    pub fn full_without_body(mut self, id: u64, body_len: usize) -> Self {
        self.name("default");
        self.fixed(id, body_len as i32 + 2, READY);
        self.zeros(body_len + 2)
    }

    /// A short record of a job with a body of `body_len` bytes.
    pub fn short(mut self, id: u64, body_len: usize, state: u8) -> Self {
        self.name("");
        self.fixed(id, body_len as i32 + 2, state);
        self
    }

    pub fn zeros(mut self, count: usize) -> Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }
}
