module linesman.invalid/bench/load

go 1.24.0
