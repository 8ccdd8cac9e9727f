package load

import (
	"log"
	"os"
	"strconv"
	"strings"
)

// Must ends the program with its error: a bench that cannot go on has no figures.
func Must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// Used is what a process has used so far.
type Used struct {
	CPU  float64 `json:"cpu_ns"`
	RSS  float64 `json:"rss_kib"`
	Peak float64 `json:"peak_kib"`
}

// Usage is what this process has used so far.
func Usage() Used {
	stat := string(Must(os.ReadFile("/proc/self/stat")))
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	ticks := Must(strconv.ParseFloat(fields[11], 64)) + Must(strconv.ParseFloat(fields[12], 64))
	result := Used{CPU: ticks * 1e7}
	for _, line := range strings.Split(string(Must(os.ReadFile("/proc/self/status"))), "\n") {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "VmRSS:":
			result.RSS = Must(strconv.ParseFloat(words[1], 64))
		case "VmHWM:":
			result.Peak = Must(strconv.ParseFloat(words[1], 64))
		}
	}
	return result
}
