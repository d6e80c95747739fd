// An agent with two tools that survives restarts of the server, and of itself: it goes on with the turn it left.
//
//	go run ./agent "What is the weather and time in Paris?" ["said while it works" ...]
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/contextd/contextd/clients/go"
)

type place struct {
	City string `json:"city"`
}

func weather(_ context.Context, in place) (string, error) {
	return "18 °C and sunny in " + in.City, nil
}

func clock(_ context.Context, in place) (string, error) { return "14:05 in " + in.City, nil }

// show prints a turn as it goes on.
func show(ctx context.Context, session *contextd.Session, run *contextd.Run, meanwhile ...string) {
	for event, err := range run.Events() {
		switch event := contextd.Must(event, err).(type) {
		case contextd.TextDelta:
			fmt.Print(event.Text)
		case contextd.TextReset: // the model was asked again, and answers otherwise
			fmt.Println("\n[again]")
		case contextd.ToolCallRequested:
			fmt.Println("\n->", event.Name, event.Arguments)
			for ; len(meanwhile) > 0; meanwhile = meanwhile[1:] {
				contextd.Must(session.Send(ctx, meanwhile[0])) // taken at the next step
			}
		}
	}
	fmt.Println("\n[turn_completed]", contextd.Must(run.Result()).Usage.TotalTokens, "tokens")
}

func main() {
	ctx, client := context.Background(), contextd.Must(contextd.Connect(""))
	session := contextd.Must(client.Session(ctx, "trip-3", contextd.Instructions("You are a travel guide."),
		contextd.NewTool("get_weather", "Current weather of a city.", weather),
		contextd.NewTool("get_time", "Local time in a city.", clock)))
	if left, err := session.Resume(ctx); err == nil {
		show(ctx, session, left)
	}
	show(ctx, session, session.Run(ctx, os.Args[1]), os.Args[2:]...)
}
