/** A server whose answers a test chooses. */
import { Server, ServerCredentials } from "@grpc/grpc-js";

// biome-ignore lint/suspicious/noExplicitAny: any method of any generated service
type Any = any;

/** One method, and what it answers; `reply` of a stream is the stream. */
export type Answers = [service: { fullName: string }, method: Any, answer: (request: Any, reply: Any) => void];

/** Starts a server with a few methods. */
export async function fake(...methods: Answers[]): Promise<{ url: string; close(): void }> {
  const server = new Server();
  for (const [service, method, answer] of methods) {
    const request = codec(method.requestType);
    const response = codec(method.responseType);
    const definition = {
      path: `/${service.fullName}/${method.name}`,
      requestStream: false as const,
      responseStream: Boolean(method.responseStream),
      requestSerialize: request.write,
      requestDeserialize: request.read,
      responseSerialize: response.write,
      responseDeserialize: response.read,
    };
    const handle = (call: Any, reply: Any) => answer(call.request, method.responseStream ? call : reply);
    server.addService({ method: definition }, { method: handle });
  }
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, at) =>
      error ? reject(error) : resolve(at),
    ),
  );
  return { url: `http://127.0.0.1:${port}`, close: () => server.forceShutdown() };
}

function codec(type: Any) {
  return {
    write: (message: unknown) => Buffer.from(type.encode(type.fromPartial(message)).finish()),
    read: (bytes: Buffer) => type.decode(bytes),
  };
}
