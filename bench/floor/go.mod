module checkpoint-guard/bench/floor

go 1.24
