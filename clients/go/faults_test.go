package contextd_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contextd/contextd/clients/go"
	"github.com/contextd/contextd/clients/go/internal/testserver"
)

// Turns of three tool steps through kills, drains, cuts and times without a server. CONTEXTD_FAULT_ROUNDS says how many
// rounds of each (3 by default), CONTEXTD_FAULT_AWAY for how many seconds there is no server (3 by default), and
// CONTEXTD_FAULT_PARALLEL how many rounds of a fault run at the same time, each with servers of its own (1 by default;
// no more than -parallel lets run).

const (
	words    = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
	final    = "It is <d>. " + words
	saidOne  = "Step one begins here."
	saidTwo  = "Step two goes on, with two calls."
	saidLast = "Step three is the last one."
	// What a turn of the script takes by itself, a little less.
	turnTime = 1300 * time.Millisecond
	toolTime = 150 * time.Millisecond
	// Turns at the same time.
	turnsAtOnce = 2
)

func slowly(text string) object { return object{"text": text, "delay_ms": 30} }

var faultScript = object{"steps": []any{
	first(object{"call": 0}, say(slowly(saidOne), callOf("lookup", object{"key": "a"}))),
	first(object{"call": 1}, say(slowly(saidTwo), callOf("lookup", object{"key": "b"}), callOf("slow_lookup", object{"key": "c"}))),
	first(object{"call": 2}, say(slowly(saidLast), callOf("slow_lookup", object{"key": "d"}))),
	say(slowly("It is {{result:slow_lookup}}. " + words)),
}}

// seen is what a host saw of a turn.
type seen struct {
	mutex      sync.Mutex
	words      strings.Builder
	seqs       []int64
	resets     int
	calls      []string
	results    []string
	result     *contextd.Result
	reconnects int
}

func (s *seen) called(key string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.calls = append(s.calls, key)
}

func (s *seen) see(event contextd.Event) {
	switch event := event.(type) {
	case contextd.TextDelta:
		s.words.WriteString(event.Text)
		return // it may come with the message that has it
	case contextd.TextReset:
		s.resets++
	case contextd.ToolCallCompleted:
		s.results = append(s.results, event.Text)
	}
	if event.Seq() > 0 {
		s.seqs = append(s.seqs, event.Seq())
	}
}

// check finds every word, every event and every call once.
func (s *seen) check(t *testing.T) {
	t.Helper()
	equal(t, s.words.String(), saidOne+saidTwo+saidLast+final)
	equal(t, s.resets, 0)
	for i, seq := range s.seqs {
		if seq != s.seqs[0]+int64(i) {
			t.Errorf("events %v are not one after the other", s.seqs)
			break
		}
	}
	slices.Sort(s.calls)
	slices.Sort(s.results)
	equal(t, strings.Join(s.calls, " "), "a b c d")
	equal(t, strings.Join(s.results, " "), "<a> <b> <c> <d>")
	equal(t, s.result.State+" "+s.result.Reason, "COMPLETED STOP")
	equal(t, s.result.Text, final)
	equal(t, s.result.Steps, 4)
}

type lookupArguments struct {
	Key string `json:"key"`
}

func runThrough(ctx context.Context, url, id string) (*seen, error) {
	client, err := contextd.Connect(url)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := &seen{}
	lookup := func(_ context.Context, in lookupArguments) (string, error) {
		found.called(in.Key)
		return "<" + in.Key + ">", nil
	}
	slow := func(ctx context.Context, in lookupArguments) (string, error) {
		time.Sleep(toolTime) // the tool's own work
		return lookup(ctx, in)
	}
	session, err := client.Session(ctx, id, contextd.Model("scripted/steps"),
		contextd.NewTool("lookup", "", lookup), contextd.NewTool("slow_lookup", "", slow))
	if err != nil {
		return nil, err
	}
	run := session.Run(ctx, "Go.")
	for event, err := range run.Events() {
		if err != nil {
			return nil, err
		}
		found.see(event)
	}
	found.result, err = run.Result()
	found.reconnects = run.Reconnects()
	return found, err
}

// through runs turns at the same time, with a fault meanwhile.
func through(t *testing.T, url, name string, fault func() error) []*seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	found, failed := make([]*seen, turnsAtOnce), make([]error, turnsAtOnce+1)
	var turns sync.WaitGroup
	for i := range turnsAtOnce {
		turns.Go(func() { found[i], failed[i] = runThrough(ctx, url, fmt.Sprintf("%s-%d", name, i)) })
	}
	failed[turnsAtOnce] = fault()
	turns.Wait()
	for _, err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, each := range found {
		t.Logf("%d reconnects", each.reconnects)
		each.check(t)
	}
	return found
}

func number(t *testing.T, name string, usual int) int {
	t.Helper()
	value, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return usual
	}
	return value
}

// fleets are lent to rounds, one to each.
type fleets chan *testserver.Fleet

func startFleets(t *testing.T) fleets {
	t.Helper()
	made := make(fleets, max(1, number(t, "CONTEXTD_FAULT_PARALLEL", 1)))
	for range cap(made) {
		made <- testserver.StartFleet(t, map[string]any{"steps": faultScript})
	}
	return made
}

// rounds runs as many at the same time as there are fleets.
func (f fleets) rounds(t *testing.T, run func(*testing.T, *testserver.Fleet, int)) {
	t.Helper()
	for round := range number(t, "CONTEXTD_FAULT_ROUNDS", 3) {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			if cap(f) > 1 {
				t.Parallel()
			}
			fleet := <-f
			defer func() {
				if t.Failed() {
					t.Log("the servers:\n" + fleet.Logs())
				}
				f <- fleet
			}()
			run(t, fleet, round)
		})
	}
}

func someTime() {
	time.Sleep(50*time.Millisecond + time.Duration(rand.Int64N(int64(turnTime))))
}

// inTurn are both replicas, so that one of them is the turn's.
func inTurn(fleet *testserver.Fleet, round int) []*testserver.Server {
	replicas := slices.Clone(fleet.Replicas)
	if round%2 == 0 {
		slices.Reverse(replicas)
	}
	return replicas
}

func TestTurnsSurvive(t *testing.T) {
	t.Parallel()
	fleets := startFleets(t)
	t.Run("kill -9 of their replica", func(t *testing.T) {
		fleets.rounds(t, func(t *testing.T, fleet *testserver.Fleet, round int) {
			through(t, fleet.URL(), fmt.Sprintf("kill-%d", round), func() error {
				someTime()
				for _, victim := range inTurn(fleet, round) {
					if err := victim.Kill(); err != nil {
						return err
					}
					time.Sleep(300 * time.Millisecond)
					if err := victim.Start(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
	t.Run("a drain", func(t *testing.T) {
		fleets.rounds(t, func(t *testing.T, fleet *testserver.Fleet, round int) {
			through(t, fleet.URL(), fmt.Sprintf("drain-%d", round), func() error {
				someTime()
				for _, victim := range inTurn(fleet, round) {
					if err := victim.Drain(); err != nil {
						return err
					}
					if err := victim.Start(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
	t.Run("a cut every 200 ms", func(t *testing.T) {
		fleets.rounds(t, func(t *testing.T, fleet *testserver.Fleet, round int) {
			cutter := testserver.StartCutter(t, fleet.Replicas[round%2], 200*time.Millisecond)
			for _, each := range through(t, cutter.URL(), fmt.Sprintf("cut-%d", round), func() error { return nil }) {
				if each.reconnects < 3 {
					t.Errorf("only %d reconnects", each.reconnects)
				}
			}
		})
	})
	t.Run("a time without any server", func(t *testing.T) {
		away := time.Duration(number(t, "CONTEXTD_FAULT_AWAY", 3)) * time.Second
		fleets.rounds(t, func(t *testing.T, fleet *testserver.Fleet, round int) {
			through(t, fleet.URL(), fmt.Sprintf("away-%d", round), func() error {
				someTime()
				for _, each := range fleet.Replicas {
					if err := each.Kill(); err != nil {
						return err
					}
				}
				time.Sleep(away)
				for _, each := range fleet.Replicas {
					if err := each.Start(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
}

func TestTurnsSurviveKill9OfTheOnlyServerAndItsDatabase(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, map[string]any{"steps": faultScript}, nil)
	for round := range min(number(t, "CONTEXTD_FAULT_ROUNDS", 3), 2) {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			through(t, server.URL(), fmt.Sprintf("lonely-%d", round), func() error {
				someTime()
				if err := server.Kill(); err != nil {
					return err
				}
				return server.Start()
			})
		})
	}
}
