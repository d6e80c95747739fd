package core

import "time"

const (
	firstDelay = 50 * time.Millisecond
	mostDelay  = time.Second
)

// Delay is the wait after so many failures in a row, at least what the server asked for. Jitter is a random number of
// 0 to 1, so that hosts that lost the same server do not come back at the same moment.
func Delay(failures int, asked time.Duration, jitter float64) time.Duration {
	usual := min(firstDelay<<min(failures, 10), mostDelay)
	return max(time.Duration(float64(usual)*(0.75+jitter/2)), asked)
}
