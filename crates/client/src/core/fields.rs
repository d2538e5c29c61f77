//! The fields of a RESERVED line, an extension: values after the size.

use beanstalkd_protocol::{Field, FieldList};

use super::tag::TraceParent;

/// The values that the server sends with a reservation: those that the connection has requested with
/// [`Client::reserve_fields`](crate::Client::reserve_fields). All others are `None`. Times are in seconds.
///
/// ```no_run
/// use beanstalk_client::{Client, Error, Field};
///
/// # fn main() -> Result<(), Error> {
/// # let address = beanstalk_client::Address::Unix("/run/beanstalkd.sock".into());
/// let mut client = Client::connect(&address)?;
/// match client.reserve_fields(&[Field::Tube, Field::Attempts]) {
///     Ok(()) | Err(Error::Unsupported { .. }) => {} // jobs of an older server come without
///     Err(error) => return Err(error),
/// }
/// let job = client.reserve()?;
/// println!("{:?}, attempt {:?}", job.fields.tube, job.fields.attempts);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fields {
    /// The tube of the job.
    pub tube: Option<String>,
    /// How often the job was reserved, including this time.
    pub attempts: Option<u64>,
    /// How often a reservation of the job has timed out.
    pub timeouts: Option<u64>,
    /// How often the job was released.
    pub releases: Option<u64>,
    /// The time since the put, in seconds.
    pub age: Option<u64>,
    /// The priority of the job.
    pub pri: Option<u32>,
    /// The time to run, in seconds.
    pub ttr: Option<u64>,
    /// The span in which the job was put; `None` also if the job has none.
    pub trace: Option<TraceParent>,
}

impl Fields {
    /// The fields for the values of [`Reply::ReservedWith`](crate::Reply::ReservedWith), on a connection that has
    /// requested this list. A value that cannot be parsed is `None`. All values are `None` if there are more or fewer
    /// than fields in the list.
    pub fn read(list: FieldList, values: &str) -> Self {
        let mut fields = Self::default();
        if values.split(' ').count() != list.iter().count() {
            return fields;
        }
        for (field, value) in list.iter().zip(values.split(' ')) {
            let number = || value.parse().ok();
            match field {
                Field::Tube => fields.tube = Some(value.to_owned()),
                Field::Attempts => fields.attempts = number(),
                Field::Timeouts => fields.timeouts = number(),
                Field::Releases => fields.releases = number(),
                Field::Age => fields.age = number(),
                Field::Pri => fields.pri = value.parse().ok(),
                Field::Ttr => fields.ttr = number(),
                Field::Trace => fields.trace = value.parse().ok(),
            }
        }
        fields
    }

    /// Whether all values are present, except a trace, which not every job has.
    pub(crate) fn are_all(&self) -> bool {
        let Self { tube, attempts, timeouts, releases, age, pri, ttr, trace: _ } = self;
        let numbers = [attempts, timeouts, releases, age, ttr];
        tube.is_some() && pri.is_some() && numbers.iter().all(|number| number.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_order_in_which_they_were_asked_for() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let all = FieldList::new(Field::ALL).unwrap();
        let read = Fields::read(all, &format!("mail 4 1 2 99 1024 60 {trace}"));
        let expected = Fields {
            tube: Some("mail".to_owned()),
            attempts: Some(4),
            timeouts: Some(1),
            releases: Some(2),
            age: Some(99),
            pri: Some(1024),
            ttr: Some(60),
            trace: trace.parse().ok(),
        };
        assert_eq!(read, expected);
        let two = FieldList::new([Field::Trace, Field::Attempts]).unwrap();
        assert_eq!(Fields::read(two, "- 7"), Fields { attempts: Some(7), ..Fields::default() });
        // Values of another connection, and numbers that are not valid.
        for values in ["", "7", "- 7 7", "7 -", "- -1", "- 99999999999999999999"] {
            assert_eq!(Fields::read(two, values), Fields::default(), "{values:?}");
        }
    }
}
