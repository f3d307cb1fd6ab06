<?php
// Makes functions and runs them; they are forgotten when the request ends.
// Run by PHP's own web server, which serves all requests in one process.
function source($n)
{
    return <<<SOURCE
        class Made$n
        {
            function go$n(\$rounds)
            {
                return \$this->outer$n(\$rounds);
            }

            function outer$n(\$rounds)
            {
                return \$this->middle$n(\$rounds) + 1;
            }

            function middle$n(\$rounds)
            {
                \$x = 0;
                for (\$i = 0; \$i < \$rounds; \$i++) {
                    \$x += inner$n(\$i);
                }
                return \$x;
            }
        }

        function inner$n(\$x)
        {
            for (\$j = 0; \$j < 20; \$j++) {
                \$x = (\$x * 31 + \$j) & 0xFFFF;
            }
            return \$x;
        }
        SOURCE;
}

function churn($number)
{
    $n = sprintf('%06d', $number % 1000000);
    eval(source($n));
    $class = "Made$n";
    $made = new $class();
    $go = "go$n";
    for ($i = $number % 4 ? 100 : 400; $i > 0; $i--) {
        $made->$go(20);
    }
}

churn((int)$_GET['n']);
