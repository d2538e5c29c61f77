<?php
// The `vendor/autoload.php` of the documents' programs. Debian's packages have a file for each library that loads it.
// Debian's pheanstalk 4 takes plain text for the name of a tube, where later releases have a TubeName.

foreach (['Pheanstalk', 'Illuminate/Queue', 'Illuminate/Events', 'Symfony/Component/Messenger',
    'Symfony/Component/Messenger/Bridge/Beanstalkd'] as $library) {
    if (stream_resolve_include_path("$library/autoload.php")) {
        require_once "$library/autoload.php";
    }
}
if (!class_exists('Pheanstalk\Values\TubeName')) {
    final class TubeName
    {
        public function __construct(private string $name)
        {
        }

        public function __toString(): string
        {
            return $this->name;
        }
    }
    class_alias('TubeName', 'Pheanstalk\Values\TubeName');
}
