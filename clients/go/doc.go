// Package contextd is a client of contextd, the server that runs the agent loop. Turns survive lost connections, crashed
// processes and restarted servers. contextd calls the model, keeps the transcript and fits it into the context window;
// your functions are the tools.
//
//	client, err := contextd.Connect("http://localhost:7070")
//	session, err := client.Session(ctx, "", contextd.Instructions("You are a travel guide."))
//	for event, err := range session.Run(ctx, "What is the weather in Paris?", weather).Events() {
//		if delta, ok := event.(contextd.TextDelta); ok {
//			fmt.Print(delta.Text)
//		}
//	}
//
// The messages and stubs of the whole API are in contextdv1.
package contextd

// Version is the version of this package and of the server that it was released with.
const Version = "0.1.0"
