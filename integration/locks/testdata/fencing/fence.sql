CREATE TABLE fence (
    resource text PRIMARY KEY,
    token    bigint NOT NULL
);

-- pass_fence begins a transaction of the holder with this token. It fails if a newer one was here, and keeps everybody else out
-- of the resource until the transaction ends.
CREATE FUNCTION pass_fence(of_resource text, with_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fence AS f VALUES (of_resource, with_token)
    ON CONFLICT (resource) DO UPDATE SET token = with_token WHERE f.token <= with_token;
    IF NOT FOUND THEN
        RAISE 'token % of % is stale', with_token, of_resource;
    END IF;
END $$;
