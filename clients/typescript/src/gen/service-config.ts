/** How every client connects: load balancing, repetition, keepalive. */
export const shared = {
  "serviceConfig": {
    "loadBalancingConfig": [{ "round_robin": {} }],
    "methodConfig": [
      {
        "name": [
          { "service": "contextd.v1.TurnService", "method": "ExecuteTurn" },
          { "service": "contextd.v1.TurnService", "method": "WatchEvents" },
          { "service": "contextd.v1.BlobService", "method": "PutBlob" }
        ]
      },
      {
        "name": [
          { "service": "contextd.v1.TurnService" },
          { "service": "contextd.v1.SessionService" },
          { "service": "contextd.v1.QueueService" },
          { "service": "contextd.v1.ContextService" },
          { "service": "contextd.v1.ModelService" },
          { "service": "contextd.v1.BlobService", "method": "GetBlob" }
        ],
        "retryPolicy": {
          "maxAttempts": 4,
          "initialBackoff": "0.1s",
          "maxBackoff": "1s",
          "backoffMultiplier": 2,
          "retryableStatusCodes": ["UNAVAILABLE"]
        }
      }
    ]
  },
  "keepalive": { "timeMs": 20000, "timeoutMs": 10000 },
  "reconnect": { "initialBackoffMs": 100, "maxBackoffMs": 1000, "connectTimeoutMs": 5000 }
};
