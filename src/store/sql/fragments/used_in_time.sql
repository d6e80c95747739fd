-- The session was last used within these times, and comes after the page before.
(:since::timestamptz is null or a.updated_at >= :since) and (:until::timestamptz is null or a.updated_at < :until)
     and (:after::timestamptz is null or (a.updated_at, a.session_id) < (:after, :after_session))
