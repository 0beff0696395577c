CREATE TABLE report (
    name  text PRIMARY KEY,
    body  text NOT NULL,
    fence bigint NOT NULL DEFAULT 0 -- the token of the row's last writer
);
INSERT INTO report VALUES ('daily', '');
