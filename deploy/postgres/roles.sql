-- The roles that Strandline connects as, for psql, once per database, as a superuser:
--
--   OWNER_PASSWORD=… APP_PASSWORD=… psql --file deploy/postgres/roles.sql "$SUPERUSERS_URL"
--
-- strandline_owner runs `strandline migrate`: it owns the schema and its tables. strandline_app runs everything
-- else, producers, workers and the command line: it reads and writes rows and can change no table. Neither is a
-- superuser. Passwords come from the environment, since arguments show in `ps`.
\set ON_ERROR_STOP on
\getenv owner_password OWNER_PASSWORD
\getenv app_password APP_PASSWORD

BEGIN;
-- To make it, a superuser is needed.
CREATE EXTENSION IF NOT EXISTS vector;

CREATE ROLE strandline_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'owner_password';
CREATE ROLE strandline_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'app_password';

REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT CONNECT, CREATE, TEMPORARY ON DATABASE :"DBNAME" TO strandline_owner;
-- An import writes its lines to a temporary table first.
GRANT CONNECT, TEMPORARY ON DATABASE :"DBNAME" TO strandline_app;

-- Grants on everything that the owner creates from now on: this release's tables and those of later releases.
ALTER DEFAULT PRIVILEGES FOR ROLE strandline_owner GRANT USAGE ON SCHEMAS TO strandline_app;
ALTER DEFAULT PRIVILEGES FOR ROLE strandline_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO strandline_app;
ALTER DEFAULT PRIVILEGES FOR ROLE strandline_owner GRANT USAGE ON SEQUENCES TO strandline_app;
COMMIT;
