//! Methods that both drivers have: the blocking driver waits where the asynchronous one awaits.

/// The value of an expression, for which a driver has to wait.
macro_rules! wait {
    (blocking, $value:expr) => {
        $value
    };
    (asynchronous, $value:expr) => {
        $value.await
    };
}

/// Implements methods of a driver, which wait.
macro_rules! waiting {
    (blocking, $of:ident { $(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $(<$lifetime:lifetime $(, $parameter:ident)?>)? ($($argument:tt)*) -> $result:ty
        $body:block
    )* }) => {
        impl $of { $(
            $(#[$attribute])*
            $visibility fn $name $(<$lifetime $(, $parameter)?>)? ($($argument)*) -> $result $body
        )* }
    };
    (asynchronous, $of:ident { $(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $(<$lifetime:lifetime $(, $parameter:ident)?>)? ($($argument:tt)*) -> $result:ty
        $body:block
    )* }) => {
        impl $of { $(
            $(#[$attribute])*
            $visibility async fn $name $(<$lifetime $(, $parameter)?>)? ($($argument)*) -> $result $body
        )* }
    };
}

pub(crate) use {wait, waiting};
