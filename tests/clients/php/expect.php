<?php
// The functions that the tests of the clients for PHP share.

// Debian's Laravel and Symfony are older than its PHP; and pheanstalk notices a lost connection by a failed write.
error_reporting(E_ALL & ~E_DEPRECATED & ~E_NOTICE);
set_error_handler(function (int $severity, string $message, string $file, int $line) {
    return error_reporting() & $severity ? throw new \ErrorException($message, 0, $severity, $file, $line) : true;
});

function equal(mixed $expected, mixed $actual): void
{
    if ($expected != $actual) {
        throw new \LogicException('expected ' . var_export($expected, true) . ', but got ' . var_export($actual, true));
    }
}

/** The call throws, and the message says why. */
function refused(string $why, callable $call): void
{
    try {
        $result = $call();
    } catch (\Exception | \ValueError $refusal) {
        str_contains($refusal->getMessage(), $why) || throw $refusal;
        return;
    }
    throw new \LogicException("$why expected, but got " . var_export($result, true));
}

function port(string $name): int
{
    return (int) getenv("BEANSTALKD_$name");
}

/** Port, options of TLS, and token: plain, then with a token, then with a token in TLS. */
function ways_to_connect(): array
{
    $token = getenv('BEANSTALKD_TOKEN');
    return [
        [port('PORT'), null, null],
        [port('GUARDED_PORT'), null, $token],
        [port('TLS_PORT'), ['cafile' => getenv('BEANSTALKD_CA')], $token],
    ];
}
