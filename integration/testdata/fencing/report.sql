CREATE TABLE report (
    name  text PRIMARY KEY,
    body  text NOT NULL,
    fence bigint NOT NULL DEFAULT 0 -- the token of whoever wrote the row last
);
INSERT INTO report VALUES ('daily', '');
