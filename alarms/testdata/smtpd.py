"""An SMTP server for tests: authentication and TLS are required, by STARTTLS or from the first byte. It prints its port,
then each message as a line of JSON. Usage: smtpd.py CERTIFICATE KEY USER PASSWORD starttls|tls"""
import json, ssl, sys
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

certificate, key, user, password, mode = sys.argv[1:]


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("unknown@"):
            return "550 5.1.1 no such mailbox"
        if address.startswith("busy@"):
            return "451 4.3.0 try again"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        print(json.dumps({"tls": server.transport.get_extra_info("sslcontext") is not None, "from": envelope.mail_from, "to": envelope.rcpt_tos,
                          "text": envelope.content.decode()}), flush=True)
        return "250 accepted"


def authenticate(server, session, envelope, mechanism, data):
    return AuthResult(success=(data.login.decode(), data.password.decode()) == (user, password), handled=False)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)


class OnAnyPort(Controller):
    def _trigger_server(self):  # it connects to self.port, which is 0 until here
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


how = {"tls": {"ssl_context": context, "auth_require_tls": False},
       "starttls": {"tls_context": context, "require_starttls": True}}[mode]
c = OnAnyPort(Handler(), hostname="127.0.0.1", port=0, auth_required=True, authenticator=authenticate, **how)
c.start()
print(c.port, flush=True)
sys.stdin.read()  # until the test closes it
c.stop()
